package hostlocal

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// readResolvConf reads a resolv.conf(5) file.
func readResolvConf(path string) (cni.DNS, error) {
	f, err := statefile.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return cni.DNS{}, err
	}
	defer f.Close()
	d, err := parseResolvConf(f)
	if err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// parseResolvConf parses the format. The last domain line counts; search and options lines
// accumulate.
func parseResolvConf(r io.Reader) (cni.DNS, error) {
	var d cni.DNS
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		fields := strings.Fields(line)
		if len(fields) < 2 || line[0] == '#' || line[0] == ';' {
			continue
		}
		switch fields[0] {
		case "nameserver":
			d.Nameservers = append(d.Nameservers, fields[1])
		case "domain":
			d.Domain = fields[1]
		case "search":
			d.Search = append(d.Search, fields[1:]...)
		case "options":
			d.Options = append(d.Options, fields[1:]...)
		}
	}
	return d, lines.Err()
}
