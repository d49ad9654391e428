package testnet

// MainWithin is [Main] for tests of leaks, which need not wait for long.
var MainWithin = mainWithin
