// Package test holds the tests of the distributed system: registry, agent and allocator with three
// members of etcd that are killed, paused, cut off and restored. Porcupine checks that the history
// of each block and shared address is linearizable, package history that no address has two holders
// at any instant, and Snapshot.Check the invariants of the store. It is a module of its own,
// because the server of etcd brings 58 modules that neither Tenon nor its programs need.
//
// The comments of the tests number the scenarios:
//
//	 1  1,000 allocations over ten nodes           TestThousandAllocations
//	 2  no request per allocation                  TestNoRequestPerAllocation
//	 3  SIGKILL at each request and change         TestKillAtEachRequest, TestKillAtEachChange,
//	                                               TestFaultAtEachRequest
//	 4  errors at each request                     TestFaultAtEachRequest
//	 5  two of three members stop                  TestChaos
//	 6  a paused leader, a silent node             TestChaos, TestSilentNode
//	 7  clocks that differ and jump                TestClocks
//	 8  a partition beyond hold                    TestPartitionBeyondHold
//	 9  a dead node returns                        TestDeadNodes, TestPartitionBeyondHold
//	10  a machine paused beyond hold               TestPausedNode
//	11  a reboot without etcd                      TestRebootWithoutStore
//	12  two machines with one name, a copied disk  TestSecondMachine, TestCopiedDiskIsRefused of
//	                                               agent
//	13  a node created again                       TestRecreatedNode, TestDeadNodes
//	15  compaction during a watch                  TestCompactedWatch, TestChaos
//	16  yesterday's snapshot                       TestRestoredSnapshot
//	17  as many addresses as containers            TestEveryAddress
//	19  routes: the built programs, three hosts    TestTraffic
//	20  5,000 nodes in memory, 200 on etcd         command scale, TestScale of load
//
// Tests on etcd need root and the packages etcd-server and etcd-client. With -every, the sweeps of
// SIGKILL take every point instead of some random ones.
package test
