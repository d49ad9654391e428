package boot

// EarlierIn is Earlier in a boot with a certain ID, which began at a certain time.
var EarlierIn = earlier
