// Package script runs the command line as users see it: each archive in testdata is a script with
// its files, and runs in network and mount namespaces of its own. It holds only tests.
package script
