// Package types holds the data of the protocol as libcni declares it: network configurations,
// routes, DNS settings, CNI_ARGS and error objects. Packages 020, 040 and 100 hold the results
// of their versions, and package create decodes results of any version.
package types
