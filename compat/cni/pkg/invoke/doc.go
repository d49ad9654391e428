// Package invoke finds and runs plugins with the API of libcni, on Tenon's package invoke.
//
// Plugins run as processes. If the program imports github.com/tenon-cni/tenon/plugins/all/link,
// [RawExec] runs Tenon's plugins in the process of the program.
package invoke
