//go:build programs

package interop

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// kubeAPI serves objects of Kubernetes, which it keeps by path. It has what the clients of an IPAM
// plugin need: create, get, list, replace and delete, and patches as in RFC 6902 without arrays.
type kubeAPI struct {
	mu      sync.Mutex
	objects map[string]object
	version int
}

// kinds are the kinds of objects by the last part of their collection's path.
var kinds = map[string]string{"ippools": "IPPool", "leases": "Lease",
	"overlappingrangeipreservations": "OverlappingRangeIPReservation"}

func (k *kubeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	code, answer := k.answer(r)
	if code >= http.StatusBadRequest {
		reasons := map[int]string{http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict",
			http.StatusUnprocessableEntity: "Invalid"}
		answer = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
			"reason": reasons[code]}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (k *kubeAPI) answer(r *http.Request) (code int, answer object) {
	key, old := r.URL.Path, k.objects[r.URL.Path]
	kind := kinds[path.Base(key)]
	var sent object
	var patch []operation
	switch {
	case r.Method == http.MethodGet && kind != "":
		return http.StatusOK, k.list(key, kind)
	case r.Method != http.MethodPost && old == nil:
		return http.StatusNotFound, nil
	case r.Method == http.MethodGet:
		return http.StatusOK, old
	case r.Method == http.MethodDelete:
		delete(k.objects, key)
		return http.StatusOK, old
	case r.Method == http.MethodPatch:
		if json.NewDecoder(r.Body).Decode(&patch) != nil {
			return http.StatusBadRequest, nil
		}
		sent = deepCopy(old)
		for _, o := range patch {
			if !o.apply(sent) {
				return http.StatusUnprocessableEntity, nil
			}
		}
	case json.NewDecoder(r.Body).Decode(&sent) != nil:
		return http.StatusBadRequest, nil
	case r.Method == http.MethodPost:
		metadata(sent)["namespace"] = path.Base(path.Dir(key))
		key = path.Join(key, metadata(sent)["name"].(string))
		if k.objects[key] != nil {
			return http.StatusConflict, nil
		}
	case metadata(sent)["resourceVersion"] != metadata(old)["resourceVersion"]:
		return http.StatusConflict, nil
	}
	k.version++
	metadata(sent)["resourceVersion"] = strconv.Itoa(k.version)
	k.objects[key] = sent
	return http.StatusOK, sent
}

// list returns the objects below a path. Without a namespace in the path, it returns all.
func (k *kubeAPI) list(key, kind string) object {
	items := []object{}
	for _, name := range slices.Sorted(maps.Keys(k.objects)) {
		parent := path.Dir(name)
		all := !strings.Contains(key, "/namespaces/") && path.Base(parent) == path.Base(key)
		if parent == key || all {
			items = append(items, k.objects[name])
		}
	}
	version := strings.TrimPrefix(strings.TrimPrefix(key, "/apis/"), "/api/")
	group, rest, _ := strings.Cut(version, "/")
	number, _, _ := strings.Cut(rest, "/")
	return object{"kind": kind + "List", "apiVersion": group + "/" + number, "items": items,
		"metadata": object{"resourceVersion": strconv.Itoa(k.version)}}
}

// collection returns the objects of a kind.
func (k *kubeAPI) collection(name string) (all []object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, o := range k.objects {
		if path.Base(path.Dir(key)) == name {
			all = append(all, o)
		}
	}
	return all
}

func metadata(o object) object {
	m, _ := o["metadata"].(object)
	return m
}

func deepCopy(o object) (c object) {
	text, err := json.Marshal(o)
	if cmp.Or(err, json.Unmarshal(text, &c)) != nil {
		panic(err)
	}
	return c
}

// operation is an operation of a patch.
type operation struct {
	Op, Path string
	Value    any
}

// apply changes an object, and reports whether it could.
func (o operation) apply(to object) bool {
	parts := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
	for _, part := range parts[:len(parts)-1] {
		next, isObject := to[part].(object)
		if !isObject {
			return false
		}
		to = next
	}
	last := parts[len(parts)-1]
	_, exists := to[last]
	switch {
	case o.Op == "test":
		return to[last] == o.Value // null is the same as absent
	case o.Op == "add", o.Op == "replace" && exists:
		to[last] = o.Value
	case o.Op == "remove" && exists:
		delete(to, last)
	default:
		return false
	}
	return true
}
