package results_test

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/internal/results"
)

func TestSecondRegistrationPanics(t *testing.T) {
	t.Parallel()
	decode := func([]byte) (types.Result, error) { return nil, nil }
	convert := func(types.Result, string) (types.Result, error) { return nil, nil }
	results.RegisterDecoder([]string{"x1", "x2"}, decode)
	results.RegisterConverter([]string{"x1"}, []string{"x2", "x3"}, convert)
	for want, register := range map[string]func(){
		`"x2" has two decoders`: func() { results.RegisterDecoder([]string{"x2"}, decode) },
		`"x1" has two converters to "x3"`: func() {
			results.RegisterConverter([]string{"x0", "x1"}, []string{"x3"}, convert)
		},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasSuffix(text, want) {
					t.Errorf("panic %q, want %q", text, want)
				}
			}()
			register()
		}()
	}
}
