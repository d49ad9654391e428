package libcni_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// Two interfaces of a container have two files.
func TestCacheOfTwoInterfaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	net := plugin(t, `{"cniVersion":"1.0.0","name":"red","type":"first"}`)
	for i, ifName := range []string{"eth0", "eth1"} {
		r.fake.output["ADD"] = fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.%d/8"}]}`, i)
		rt := runtimeConf()
		rt.IfName = ifName
		if _, err := r.AddNetwork(t.Context(), net, rt); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.cached(t); got != "red-c1-eth0 red-c1-eth1" {
		t.Errorf("files %s", got)
	}
	for i, ifName := range []string{"eth0", "eth1"} {
		rt := &libcni.RuntimeConf{ContainerID: "c1", IfName: ifName}
		result, err := r.GetNetworkCachedResult(net, rt)
		want := fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.%d/8"}]}`, i)
		if err != nil || resultText(t, result) != want {
			t.Errorf("%s: %s, %v; want %s", ifName, resultText(t, result), err, want)
		}
	}
}

func TestCachedConfig(t *testing.T) {
	t.Parallel()
	const failed = `failed to unmarshal cached network "red" config: `
	for _, row := range []struct{ name, file, config, want string }{
		{"a file", cachedFile(result100), "{}", ""},
		{"not JSON", "adfadsfasdfasfdsafaf", "",
			failed + "invalid character 'a' looking for beginning of value"},
		{"an empty file", "\n", "", failed + "unexpected end of JSON input"},
		{"another kind", `{"kind":"cniCacheV9"}`, "",
			`read cached network "red" config has wrong kind: cniCacheV9`},
		{"no kind", `{"cniVersion":"0.4.0"}`, "",
			`read cached network "red" config has wrong kind: `},
		{"a kind that is no text", `{"kind":5}`, "",
			failed + "json: cannot unmarshal number into Go value of type string"},
		{"another attachment",
			`{"kind":"cniCacheV1","containerId":"1","networkName":"red-c","ifName":"eth0"}`, "", ""},
		{"no file", "", "", ""},
	} {
		r := newRig(t)
		if row.file != "" {
			r.write(t, "red-c1-eth0", row.file)
		}
		rt := &libcni.RuntimeConf{ContainerID: "c1", IfName: "eth0", NetNS: "mine",
			Args: [][2]string{{"MY", "1"}}, CapabilityArgs: map[string]any{"my": 1}}
		config, restored, err := r.GetNetworkListCachedConfig(list(t, "1.0.0", "first"), rt)
		wantError(t, err, row.want)
		if string(config) != row.config || (restored == nil) != (row.config == "") {
			t.Errorf("%s: %q, %+v", row.name, config, restored)
		}
		if want := (&libcni.RuntimeConf{ContainerID: "c1", IfName: "eth0", NetNS: "mine",
			Args: [][2]string{{"X", "Y"}}, CapabilityArgs: map[string]any{"mac": "m"}}); row.config != "" &&
			!reflect.DeepEqual(restored, want) {
			t.Errorf("%s: %+v, want %+v", row.name, restored, want)
		}
		if rt.Args[0][0] != "MY" {
			t.Error("the arguments of the caller have changed")
		}
	}
}

// The caller's arguments stay if the file has none; its capability arguments do not.
func TestCachedConfigWithoutArguments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(t, "red-c1-eth0",
		`{"kind":"cniCacheV1","containerId":"c1","networkName":"red","ifName":"eth0","config":"e30="}`)
	rt := runtimeConf()
	rt.Args, rt.CapabilityArgs = [][2]string{{"A", "1"}}, map[string]any{"a": 1}
	_, restored, err := r.GetNetworkListCachedConfig(list(t, "1.0.0", "first"), rt)
	if err != nil || !reflect.DeepEqual(restored.Args, rt.Args) || restored.CapabilityArgs != nil {
		t.Errorf("%+v, %v", restored, err)
	}
}

// Numbers are a float64, as encoding/json decodes them, unless that would change an integer.
func TestCachedNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(t, "red-c1-eth0", `{"kind":"cniCacheV1","containerId":"c1","networkName":"red",
		"ifName":"eth0","capabilityArgs":{"n":[1,1.5,-3,9007199254740993,12345678901234567890,1e400]}}`)
	attachments, err := r.GetCachedAttachments("c1")
	if err != nil || len(attachments) != 1 {
		t.Fatal(attachments, err)
	}
	want := map[string]any{"n": []any{1.0, 1.5, -3.0, json.Number("9007199254740993"),
		json.Number("12345678901234567890"), json.Number("1e400")}}
	if got := attachments[0].CapabilityArgs; !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func TestIncompleteKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct{ network, id, ifName string }{
		{"", "c1", "eth0"}, {"red", "", "eth0"}, {"red", "c1", ""},
	} {
		n := list(t, "1.0.0", "first")
		n.Name = row.network
		net := plugin(t, fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"first"}`, row.network))
		rt := &libcni.RuntimeConf{ContainerID: row.id, IfName: row.ifName}
		want := fmt.Sprintf("cache file path requires network name (%q), container ID (%q), "+
			"and interface name (%q)", row.network, row.id, row.ifName)
		_, listResult := r.GetNetworkListCachedResult(n, rt)
		_, _, listConfig := r.GetNetworkListCachedConfig(n, rt)
		_, result := r.GetNetworkCachedResult(net, rt)
		_, _, config := r.GetNetworkCachedConfig(net, rt)
		for _, err := range []error{listResult, listConfig, result, config} {
			wantError(t, err, want)
		}
	}
}

// The list of attachments skips other files and filters by the stored container ID.
func TestGetCachedAttachments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if attachments, err := r.GetCachedAttachments(""); attachments != nil || err != nil {
		t.Errorf("without a directory: %v, %v", attachments, err)
	}
	entry := func(network, id, ifName string) string {
		return fmt.Sprintf(`{"kind":"cniCacheV1","networkName":%q,"containerId":%q,"ifName":%q}`,
			network, id, ifName)
	}
	for name, content := range map[string]string{
		"b-c1-eth0": entry("b", "c1", "eth0"), "a-c1-eth0": entry("a", "c1", "eth0"),
		"a-c1-x-eth0": entry("a", "c1-x", "eth0"), "a-c2-eth0": entry("a", "c2", "eth0"),
		"garbage-c1-eth0": "garbage", "kind-c1-eth0": `{"kind":"x"}`, "old-c1-eth0": `{"ips":[]}`,
		"no-c1-network": entry("", "c1", "eth0"), "no-c1-interface": entry("a", "c1", ""),
		"dir-c1-eth0/x": "",
	} {
		r.write(t, name, content)
	}
	for id, want := range map[string]string{
		"": "a/c1/eth0 a/c1-x/eth0 a/c2/eth0 b/c1/eth0 ", "c1": "a/c1/eth0 b/c1/eth0 ",
		"c1-x": "a/c1-x/eth0 ", "c3": "", "x": "",
	} {
		attachments, err := r.GetCachedAttachments(id)
		got := ""
		for _, a := range attachments {
			got += a.Network + "/" + a.ContainerID + "/" + a.IfName + " "
		}
		if err != nil || got != want {
			t.Errorf("ID %q: %s, %v; want %s", id, got, err, want)
		}
	}
}
