package cni

// Pod is what runtimes of Kubernetes tell plugins of a pod in CNI_ARGS. Nobody has written down that they do; plugins that
// enforce network policy rely on it nevertheless.
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

// variables are the members in the order of [Pod.Args].
func (p *Pod) variables() []podVariable {
	return []podVariable{
		{"K8S_POD_NAMESPACE", &p.Namespace}, {"K8S_POD_NAME", &p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", &p.InfraContainerID}, {"K8S_POD_UID", &p.UID},
	}
}

// Args returns CNI_ARGS with which plugins learn of the pod, and with IgnoreUnknown, so that those that know nothing of pods
// do not mind. The order is always the same; what is empty is left out. network.Client refuses values that contain ';' or
// '=', which CNI_ARGS cannot carry; the names and UIDs of Kubernetes never do.
func (p Pod) Args() Args {
	args := Args{{"IgnoreUnknown", "1"}}
	for _, v := range p.variables() {
		if *v.value != "" {
			args = append(args, Arg{v.key, *v.value})
		}
	}
	return args
}

// PodFrom returns the pod that CNI_ARGS tell of, see [ParseArgs]; ok is false where they lack its namespace or its name. A
// plugin on the kit of package plugin leaves Info.Args unset, so that other keys are not refused.
func PodFrom(args Args) (p Pod, ok bool) {
	for _, v := range p.variables() {
		*v.value, _ = args.Get(v.key)
	}
	return p, p.Namespace != "" && p.Name != ""
}
