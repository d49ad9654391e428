// Command tenon-dhcp is the daemon of the IPAM plugin dhcp. It is a separate program, because
// its libraries would slow the start of every plugin.
package main

import "os"

// version is set when the program is linked.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }
