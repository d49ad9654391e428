// Package types holds the data of the protocol as libcni declares it: network configurations, routes,
// DNS settings, CNI_ARGS and error objects. Results of a particular version are in the packages 020,
// 040 and 100; package create decodes results of any version.
package types
