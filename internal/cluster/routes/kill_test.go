package routes_test

const killAt = "TENON_TEST_KILL_AT"

func killed() {}
