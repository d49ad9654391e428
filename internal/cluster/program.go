package cluster

// Program is the file name of the program with the agent and the commands of a cluster.
const Program = "tenon-cluster"

// CalledAs is the environment variable in which tenon passes to the program how users call it.
const CalledAs = "TENON_CALLED_AS"
