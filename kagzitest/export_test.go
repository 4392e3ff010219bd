package kagzitest

// StopServer is what Main does before it exits.
var StopServer = stopSharedServer
