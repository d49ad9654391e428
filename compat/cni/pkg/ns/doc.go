// Package ns compares network namespaces.
package ns
