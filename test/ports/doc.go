// Package ports has samples of another library, written for Kagzi: complete workflows with the calls of their programs,
// each a test. They show what becomes of workarounds: handlers that take a lock, signals that are answered by
// activities, channels that are drained before a run continues.
//
// The originals are samples of Temporal for Go (temporalio/samples-go, August 2026). No code was taken from them. The
// table has the lines of each, and of the test here.
//
//	sample                               lines  here                   lines
//	safe_message_handler                   412  TestClusterManager       125
//	early-return                           118  TestEarlyReturn           50
//	update                                  78  TestCounter               45
//	reqrespupdate                          165  TestUppercaser            37
//	reqrespactivity                        219  TestUppercaser            37
//	reqrespquery                           188  TestUppercaser            37
//	shoppingcart                            70  TestShoppingCart          64
//	synchronous-proxy                      191  TestDialogue              53
//	nexus-messaging/ondemandpattern        365  TestRunAsksRun            66
//	nexus-messaging/callerpattern          291  TestRunAsksRun            66
//	googleadk/chat                         136  TestChat                  43
//	query                                   58  TestQuery                 31
//	updatabletimer                          86  TestUpdatableTimer        38
//	recovery                                71  TestTrips                 34
//	child-workflow-continue-as-new          53  TestChildContinues        23
//	pso                                    137  TestSearch                57
//	cron                                    48  TestCronLoop              36
//	batch-sliding-window                   223  TestSlidingWindow         59
//	temporal-fixtures/rainbow-statuses     112  TestEveryStatus           33
//	polling/frequent                        73  TestFrequentPolling       31
//	polling/infrequent                      46  TestInfrequentPolling     18
//	polling/periodic_sequence               67  TestPeriodicSequence      20
//	await-signals                          118  TestSignalsOutOfOrder     37
//	expense                                119  TestNamedEvent            48
//	mutex                                  180  TestMutex                 37
//	sleep-for-days                          42  TestSleepForDays          31
//	together                              3666                          1016
//
// Lines are those with code, without imports. Of an original, its workflows, its activities and the programs that start
// and ask are counted, with what they log, unless the comment of the test says otherwise. Its worker, tests and pages
// are not. Those here include all checks of the test. TestUppercaser stands for three samples, TestRunAsksRun for two;
// each is counted once.
package ports
