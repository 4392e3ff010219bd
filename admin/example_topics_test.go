package admin_test

import (
	"github.com/kagzi/kagzi/topic"
)

// Those who publish and those who read share the topic.
var Received = topic.Define[Mail]("mail.received")

type Mail struct{ From, Subject string }
