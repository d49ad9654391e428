package cni

// Pod is the description of a pod that Kubernetes runtimes pass to plugins in CNI_ARGS. This is an
// undocumented convention; plugins that enforce network policy rely on it nevertheless.
type Pod struct {
	Namespace        string // K8S_POD_NAMESPACE
	Name             string // K8S_POD_NAME
	UID              string // K8S_POD_UID
	InfraContainerID string // K8S_POD_INFRA_CONTAINER_ID: the container ID of the sandbox
}

// podVariable is a member of a Pod and its key.
type podVariable struct {
	key   string
	value *string
}

// variables returns the members in the order of [Pod.Args].
func (p *Pod) variables() []podVariable {
	return []podVariable{
		{"K8S_POD_NAMESPACE", &p.Namespace}, {"K8S_POD_NAME", &p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", &p.InfraContainerID}, {"K8S_POD_UID", &p.UID},
	}
}

// Args returns CNI_ARGS that describe the pod, with IgnoreUnknown, so that plugins without support
// for these keys accept them. The order is always the same; empty members are omitted.
// network.Client refuses values that contain ';' or '=', which CNI_ARGS cannot represent; names and
// UIDs of Kubernetes never contain them.
func (p Pod) Args() Args {
	args := Args{{"IgnoreUnknown", "1"}}
	for _, v := range p.variables() {
		if *v.value != "" {
			args = append(args, Arg{v.key, *v.value})
		}
	}
	return args
}

// PodFrom returns the pod that CNI_ARGS describe, see [ParseArgs]; ok is false if they lack its
// namespace or its name. A plugin built with package plugin leaves Info.Args unset, so that other
// keys are accepted.
func PodFrom(args Args) (p Pod, ok bool) {
	for _, v := range p.variables() {
		*v.value, _ = args.Get(v.key)
	}
	return p, p.Namespace != "" && p.Name != ""
}
