// Package ipam decides which addresses an attachment gets: ranges and their defaults, requested addresses, and the order
// in which a range set is searched. It holds no state and does no I/O; a [Store] keeps the reservations.
//
// Texts of errors are those of the reference host-local plugin where that plugin has one, because users search for them.
package ipam
