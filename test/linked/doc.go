// Package linked tests what it means that plugins run in the process of a runtime, which has linked them in: many at once,
// panics, deadlines, and what of the process must not change. That they print what they print as processes is the business
// of plugintest.
package linked
