package plugin

import "encoding/json"

// decodeLeniently fills in what can be read of a JSON object and passes over the rest: a member of the wrong type costs that member, not its neighbours. DEL
// and GC need it, since a configuration may have been edited after the ADD.
func decodeLeniently(object []byte, into any) {
	if json.Unmarshal(object, into) == nil {
		return
	}
	decodeMembers(object, into, func(b []byte) []byte { return b })
}

// decodeMembers decodes the members of object one by one. wrap puts a value back to where object stands in the document.
func decodeMembers(object []byte, into any, wrap func([]byte) []byte) {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return
	}
	for key, value := range members {
		name, err := json.Marshal(key)
		if err != nil {
			continue
		}
		at := func(b []byte) []byte {
			return wrap([]byte("{" + string(name) + ":" + string(b) + "}"))
		}
		if json.Unmarshal(at(value), into) != nil {
			decodeMembers(value, into, at)
		}
	}
}
