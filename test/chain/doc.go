// Package chain tests chained plugins behind those that make an interface. What is special about either is tested with them.
package chain
