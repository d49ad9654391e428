package statefile

// EarlierIn is EarlierBoot in a boot with a given ID and start time.
var EarlierIn = earlierIn
