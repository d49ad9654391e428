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

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
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

// kustomize builds a directory.
func kustomize(t *testing.T, name string) map[string]any {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(text))
}

// render renders the chart with values, for Kubernetes 1.36.
func render(t *testing.T, values map[string]any) map[string]any {
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
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&text, "\n---\n%s", files[name])
	}
	return objects(t, text.String())
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
