package admin_test

import (
	"github.com/kagzi/kagzi"
)

// Senders and workflows share the signal, as they share the workflow.
var Approved = kagzi.DefineSignal[string]("approved")
