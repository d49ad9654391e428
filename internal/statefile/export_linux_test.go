package statefile

// EarlierIn is EarlierBoot in a boot with a certain ID, which began at a certain time.
var EarlierIn = earlierIn
