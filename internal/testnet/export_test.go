package testnet

// MainWithin is [Main] for tests of leaks, with a shorter wait.
var MainWithin = mainWithin

// Whole is whole.
var Whole = whole
