// Package ipam decides which addresses an attachment gets: ranges and their defaults, requested
// addresses, and the order in which a range set is searched. It holds no state and does no I/O; a
// [Store] keeps the reservations.
//
// Error texts equal upstream host-local's where that plugin has one, because users search for them.
package ipam
