// Package test holds the tests of the distributed system: registry, agent and allocator against
// three members of etcd that are killed, paused, partitioned and restored, checked by porcupine and
// by a search for addresses with two holders. The numbers in the names of the tests are those of
// the scenarios in its README. It is a module of its own, because the server of etcd brings 58
// modules that neither Tenon nor its programs need.
package test
