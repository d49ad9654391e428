// Package script tests the command line as users see it: each archive in testdata is a script with
// its files, and runs in its own network and mount namespaces. The package contains only tests.
package script
