package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const dir = "../../contrib/kubernetes"

// objects decodes manifests strictly: an unknown or repeated field is an error. It returns each
// object in the form of the API type.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		var object any
		switch head.Kind {
		case "":
			continue // only comments
		case "DaemonSet":
			object = &appsv1.DaemonSet{}
		case "ConfigMap":
			object = &corev1.ConfigMap{}
		default:
			t.Fatalf("unknown kind %q", head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatalf("%s %s: %v", head.Kind, head.Metadata.Name, err)
		}
		found[head.Kind+" "+head.Metadata.Name] = object
	}
	return found
}

// kustomize builds a directory of the manifests.
func kustomize(t *testing.T, name string) map[string]any {
	t.Helper()
	return kustomizeDir(t, filepath.Join(dir, name))
}

func kustomizeDir(t *testing.T, path string) map[string]any {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(text))
}

// render renders the chart with values.
func render(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	text, err := renderText(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

// renderText returns an error if the values do not conform to the schema of the chart.
func renderText(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	chart, err := loader.LoadDir(filepath.Join(dir, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, values,
		chartutil.ReleaseOptions{Name: "tenon", Namespace: "kube-system"}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&text, "\n---\n%s", files[name])
	}
	return text.String(), nil
}

// TestManifests: the manifests are strictly valid, kustomize builds the same objects, and the chart
// renders them from its default values.
func TestManifests(t *testing.T) {
	t.Parallel()
	enabled := map[string]any{"enabled": true}
	for name, row := range map[string]struct {
		file   string
		values map[string]any
	}{
		"install":   {"tenon.yaml", nil},
		"uninstall": {"tenon-uninstall.yaml", map[string]any{"uninstall": true}},
		"dhcp":      {"tenon-dhcp.yaml", map[string]any{"dhcp": enabled}},
		"cluster":   {"tenon-cluster.yaml", map[string]any{"cluster": enabled}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(dir, name, row.file))
			if err != nil {
				t.Fatal(err)
			}
			plain := objects(t, string(text))
			built, rendered := kustomize(t, name), render(t, row.values)
			if len(plain) != len(built) {
				t.Errorf("kustomize builds %d objects, want %d", len(built), len(plain))
			}
			for key, want := range plain {
				same(t, "kustomize: "+key, built[key], want)
				same(t, "chart: "+key, rendered[key], want)
			}
		})
	}
}

// same compares objects as YAML. JSON in a ConfigMap may be formatted in another way.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is missing", what)
		return
	}
	a, b := text(t, got), text(t, want)
	if !bytes.Equal(a, b) {
		t.Errorf("%s differs:\n%s\nwant\n%s", what, a, b)
	}
}

func text(t *testing.T, object any) []byte {
	t.Helper()
	if m, ok := object.(*corev1.ConfigMap); ok {
		for name, value := range m.Data {
			var data any
			if err := yaml.UnmarshalStrict([]byte(value), &data); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			formatted, err := yaml.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			m.Data[name] = string(formatted)
		}
	}
	b, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDocumentedKustomization builds the example of docs/kubernetes.md.
func TestDocumentedKustomization(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml title=\"kustomization.yaml\"\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("the page has no kustomization.yaml")
	}
	mine := t.TempDir()
	install, err := filepath.Abs(filepath.Join(dir, "install"))
	if err != nil {
		t.Fatal(err)
	}
	if install, err = filepath.Rel(mine, install); err != nil {
		t.Fatal(err)
	}
	example = strings.ReplaceAll(example, "tenon_VERSION_kubernetes/install", install)
	err = os.WriteFile(filepath.Join(mine, "kustomization.yaml"), []byte(example), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	found := kustomizeDir(t, mine)
	networks := found["ConfigMap tenon-networks"].(*corev1.ConfigMap).Data
	if len(networks) != 1 || !strings.Contains(networks["10-pods.conflist"], `"pool": "pods"`) {
		t.Errorf("networks %v", networks)
	}
	image := found["DaemonSet tenon"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Image
	if image != "registry.example/tenon:latest" {
		t.Errorf("image %s", image)
	}
}

// TestChartValues: values replace the image, the networks and the directories.
func TestChartValues(t *testing.T) {
	t.Parallel()
	found := render(t, map[string]any{
		"image":          map[string]any{"repository": "registry.example/tenon", "tag": "1.2.3"},
		"networks":       map[string]any{"10-tenon.conflist": nil, "10-pods.conflist": "{}"},
		"netDir":         "/etc/other/net.d",
		"seLinuxOptions": map[string]any{"type": "spc_t"},
	})
	networks := found["ConfigMap tenon-networks"].(*corev1.ConfigMap)
	if got := fmt.Sprint(networks.Data); got != "map[10-pods.conflist:{}]" {
		t.Errorf("networks %s", got)
	}
	pod := found["DaemonSet tenon"].(*appsv1.DaemonSet).Spec.Template.Spec
	if got := pod.Containers[0].Image; got != "registry.example/tenon:1.2.3" {
		t.Errorf("image %s", got)
	}
	if got := pod.Containers[0].SecurityContext.SELinuxOptions; got == nil || got.Type != "spc_t" {
		t.Errorf("SELinux %v", got)
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == "/etc/other/net.d"
	}) {
		t.Errorf("volumes %v", pod.Volumes)
	}
	if len(found) != 2 {
		t.Errorf("%d objects, want 2", len(found))
	}
}

// nested returns values with one value at a path with dots. A backslash precedes a dot of a key.
func nested(path string, value any) map[string]any {
	keys := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for _, key := range slices.Backward(keys) {
		value = map[string]any{strings.ReplaceAll(key, "\x00", "."): value}
	}
	return value.(map[string]any)
}

// paths returns the paths of all values, as nested expects them. An empty object is a value.
func paths(values map[string]any, prefix string) (all []string) {
	for key, value := range values {
		path := prefix + strings.ReplaceAll(key, ".", `\.`)
		if below, ok := value.(map[string]any); ok && len(below) > 0 {
			all = append(all, paths(below, path+".")...)
		} else {
			all = append(all, path)
		}
	}
	return all
}

// TestChartEveryValue changes the values of the chart one by one: each appears in the objects,
// which remain valid.
func TestChartEveryValue(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		value any
		want  string // in the text of an object
	}{
		"image.repository":                  {"registry.example/tenon", "image: registry.example/tenon:"},
		"image.tag":                         {"9.8.7", "image: ghcr.io/tenon-cni/tenon:9.8.7\n"},
		"image.pullPolicy":                  {"Always", "imagePullPolicy: Always"},
		`networks.10-tenon\.conflist`:       {"{}", "10-tenon.conflist: '{}'"},
		"uninstall":                         {true, "- uninstall"},
		"pluginDir":                         {"/opt/other", "path: /opt/other\n"},
		"netDir":                            {"/etc/other", "path: /etc/other\n"},
		"resources.requests.cpu":            {"77m", "cpu: 77m"},
		"resources.requests.memory":         {"77Mi", "memory: 77Mi"},
		"seLinuxOptions":                    {map[string]any{"type": "spc_t"}, "type: spc_t"},
		"dhcp.enabled":                      {true, "name: tenon-dhcp\n"},
		"dhcp.resources.requests.cpu":       {"77m", "cpu: 77m"},
		"dhcp.resources.requests.memory":    {"77Mi", "memory: 77Mi"},
		"cluster.enabled":                   {true, "name: tenon-cluster\n"},
		"cluster.secret":                    {"other", "secretName: other\n"},
		"cluster.config.cluster":            {"other", `"cluster": "other"`},
		"cluster.config.endpoints":          {[]any{"https://etcd"}, `"https://etcd"`},
		"cluster.config.ca":                 {"/other", `"ca": "/other"`},
		"cluster.config.cert":               {"/other", `"cert": "/other"`},
		"cluster.config.key":                {"/other", `"key": "/other"`},
		"cluster.resources.requests.cpu":    {"77m", "cpu: 77m"},
		"cluster.resources.requests.memory": {"77Mi", "memory: 77Mi"},
	}
	chart, err := loader.LoadDir(filepath.Join(dir, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths(chart.Values, "") {
		if _, ok := rows[path]; !ok {
			t.Errorf("the test changes no value %s", path)
		}
	}
	for path, row := range rows {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			part, _, _ := strings.Cut(path, ".")
			values := nested(path, row.value)
			plain := map[string]any{}
			if part == "dhcp" || part == "cluster" {
				values = chartutil.CoalesceTables(values, nested(part+".enabled", true))
				if path != part+".enabled" {
					plain = nested(part+".enabled", true)
				}
			}
			if before := all(t, plain); strings.Contains(before, row.want) {
				t.Errorf("%q is in the objects with other values", row.want)
			}
			if after := all(t, values); !strings.Contains(after, row.want) {
				t.Errorf("no %q in\n%s", row.want, after)
			}
		})
	}
}

// all returns the objects of the chart with values, as YAML.
func all(t *testing.T, values map[string]any) string {
	t.Helper()
	var b strings.Builder
	found := render(t, values)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		text, err := yaml.Marshal(found[name])
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// TestChartSchema: the chart refuses unknown values, and values of other types.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	for path, value := range map[string]any{
		"dhcp.enable": true, "Uninstall": true, "image.name": "x", "image.tag": 1.2, "uninstall": "true",
		"image.pullPolicy": "Sometimes", "netDir": "etc", "cluster.endpoints": "x", "resources.cpu": "1",
		`networks.10-pods\.conflist`: map[string]any{"name": "pods"}, "seLinuxOptions.kind": "x",
	} {
		if _, err := renderText(t, nested(path, value)); err == nil {
			t.Errorf("%s: %v is accepted", path, value)
		}
	}
	if _, err := renderText(t, nested("global.of", "another chart")); err != nil {
		t.Error(err)
	}
}

// TestStrictFiles: the files of kustomize and Helm have no unknown fields.
func TestStrictFiles(t *testing.T) {
	t.Parallel()
	for path, file := range map[string]any{
		"chart/Chart.yaml":             &chart.Metadata{},
		"install/kustomization.yaml":   &types.Kustomization{},
		"uninstall/kustomization.yaml": &types.Kustomization{},
		"dhcp/kustomization.yaml":      &types.Kustomization{},
		"cluster/kustomization.yaml":   &types.Kustomization{},
	} {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, file); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestReferences: selectors match the pods, every volume is mounted, and every mount has a volume.
func TestReferences(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"install", "uninstall", "dhcp", "cluster"} {
		for key, object := range kustomize(t, name) {
			set, ok := object.(*appsv1.DaemonSet)
			if !ok {
				continue
			}
			if !maps.Equal(set.Spec.Selector.MatchLabels, set.Spec.Template.Labels) {
				t.Errorf("%s: selector %v, labels %v", key, set.Spec.Selector.MatchLabels,
					set.Spec.Template.Labels)
			}
			volumes, mounts := map[string]bool{}, map[string]bool{}
			for _, v := range set.Spec.Template.Spec.Volumes {
				volumes[v.Name] = true
			}
			for _, m := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
				mounts[m.Name] = true
			}
			if !maps.Equal(volumes, mounts) {
				t.Errorf("%s: volumes %v, mounts %v", key, volumes, mounts)
			}
		}
	}
}

// TestPrivileges: the pods that install and uninstall get nothing beyond the documented privileges.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	for name, capabilities := range map[string]string{
		"install": "[NET_ADMIN SYS_ADMIN]", "uninstall": "[NET_ADMIN]"} {
		spec := kustomize(t, name)["DaemonSet tenon"].(*appsv1.DaemonSet).Spec.Template.Spec
		if spec.HostPID || spec.HostIPC || len(spec.Containers) != 1 || len(spec.InitContainers) != 0 ||
			*spec.AutomountServiceAccountToken {
			t.Errorf("%s: %+v", name, spec)
		}
		context := spec.Containers[0].SecurityContext
		if context.Privileged != nil || *context.AllowPrivilegeEscalation ||
			!*context.ReadOnlyRootFilesystem || fmt.Sprint(context.Capabilities.Drop) != "[ALL]" ||
			fmt.Sprint(context.Capabilities.Add) != capabilities ||
			context.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", name, context)
		}
	}
}
