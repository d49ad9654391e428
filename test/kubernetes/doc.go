// Package kubernetes tests the manifests, the kustomizations and the Helm chart of
// contrib/kubernetes with the libraries of kubectl and Helm, without a cluster. It is a module of
// its own, because these libraries are large. It contains only tests; scripts/test-image runs them.
package kubernetes
