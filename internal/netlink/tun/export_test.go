package tun

// Execute is for tests.
var Execute = execute
