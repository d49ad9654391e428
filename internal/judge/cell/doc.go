// Package cell runs a scenario of the judge in a cell: a process of its own with namespaces for
// network, mounts, processes and IPC. In it, all files of the host are read-only, the writable
// directories are empty and end with the cell, and no process, device or network of the host is
// reachable. The subject may be hostile: it may hang, flood its output, fork, signal its group, write
// anywhere and delete its own binary.
package cell
