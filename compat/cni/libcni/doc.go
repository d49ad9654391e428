// Package libcni loads network configurations and runs their plugins, for container runtimes. It
// has the API and the behaviour of package libcni of the CNI project and runs on Tenon.
//
// A [CNIConfig] attaches containers to networks (ADD), detaches them (DEL), checks attachments
// (CHECK) and networks (STATUS), and removes attachments that are no longer in use (GC).
// [LoadNetworkConf] and the functions around it read configurations. An attachment is identified by
// the name of its network, the container ID and the interface name; a file in the cache directory
// keeps its configuration, its arguments and its result.
//
// The package differs from libcni 1.3.1 in these points:
//
//   - If ADD fails, DEL runs for the plugins that ran; see [CNIConfig.AddNetworkList].
//   - DEL uses the cached configuration; see [CNIConfig.DelNetworkList].
//   - Cache files are replaced atomically, and a file of another attachment is not used.
//   - Names that contain a path separator are refused when a list is loaded, and on DEL and CHECK.
//   - Numbers in configurations keep their digits.
//   - A list without a name gets no plugins from other files.
//   - STATUS and GC refuse a version that cannot be parsed, and GC an unreadable cache directory.
//   - A nil plugin in a list is an error.
//
// A CNIConfig may be used by several goroutines. It takes no locks: operations on the same
// attachment at the same time are the caller's responsibility.
package libcni
