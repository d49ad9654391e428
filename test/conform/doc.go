// Package conform judges Tenon's own plugins as "tenon conform plugin" does: all plugins that
// "tenon install" provides must pass the strictest profile with the waivers of docs/conformance.
package conform
