package pictures

import (
	"strings"

	"github.com/kagzi/kagzi"
)

var all = []func() *picture{life, replay, takeover, saga, conversation}

// life draws the states of a run.
func life() *picture {
	p := &picture{name: "life.svg", title: "The life of a run", height: 604}
	state := func(s kagzi.Status, x, y int) {
		p.box("code "+strings.ToLower(string(s)), x, y, 150, 44, string(s))
	}
	p.box("ink", 230, 20, 100, 34, "Start")
	p.box("frame", 20, 82, 520, 326)
	p.write("past", "start", 36, 108, "active")
	state(kagzi.StatusPending, 205, 106)
	state(kagzi.StatusRunning, 205, 222)
	state(kagzi.StatusSleeping, 205, 338)
	p.arrow("soft", 280, 54, 280, 106)
	p.arrow("soft", 245, 150, 245, 222)
	p.write("ink", "end", 233, 192, "claimed")
	p.arrow("soft", 315, 222, 315, 150)
	p.write("ink", "start", 327, 192, "retry, shutdown")
	p.arrow("soft", 205, 234, 172, 234, 172, 254, 205, 254)
	p.write("ink", "end", 162, 239, "worker lost:", "claimed again")
	p.arrow("soft", 245, 266, 245, 338)
	p.write("ink", "end", 233, 308, "sleep, wait, child")
	p.arrow("soft", 315, 338, 315, 266)
	p.write("ink", "start", 327, 297, "due or woken,", "and claimed")
	p.arrow("soft", 355, 244, 465, 244, 465, 540)
	p.write("ink", "start", 367, 236, "returns")
	p.box("sleeping dashed", 20, 452, 335, 44, "compensations run, if any")
	p.arrow("soft", 95, 408, 95, 452)
	p.write("ink", "start", 107, 436, "cancel")
	p.arrow("soft", 280, 408, 280, 452)
	p.write("ink", "start", 292, 436, "error, deadline")
	p.arrow("soft", 95, 496, 95, 540)
	p.arrow("soft", 280, 496, 280, 540)
	state(kagzi.StatusCancelled, 20, 540)
	state(kagzi.StatusFailed, 205, 540)
	state(kagzi.StatusCompleted, 390, 540)
	return p
}

// replay draws the second call of a function.
func replay() *picture {
	const first, record, second, w, h = 20, 206, 392, 148, 62
	p := &picture{name: "replay.svg", title: "A replay", height: 346}
	p.write("ink name", "middle", first+w/2, 42, "first call")
	p.write("ink name", "middle", record+w/2, 42, "records")
	p.write("ink name", "middle", second+w/2, 42, "second call")
	for i, row := range [][]string{{"code running", "charge", "executes"}, {"code sleeping", "sleep", "suspends"}} {
		y := 64 + i*100
		p.box(row[0], first, y, w, h, row[1:]...)
		p.box("code past", record, y, w, h, row[1])
		p.box("code past", second, y, w, h, row[1], "returns at once")
		p.arrow("soft", first+w, y+h/2, record, y+h/2)
		p.arrow("past dashed", record+w, y+h/2, second, y+h/2)
		p.arrow("past", second+w/2, y+h, second+w/2, y+100)
	}
	p.arrow("soft", first+w/2, 64+h, first+w/2, 164)
	p.write("past", "middle", first+w/2, 290, "holds nothing", "while it sleeps")
	p.box("code running", second, 264, w, h, "ship", "executes")
	p.box("code past", record, 264, w, h, "ship")
	p.arrow("soft", second, 264+h/2, record+w, 264+h/2)
	return p
}

// takeover draws a worker that dies, and another one that goes on.
func takeover() *picture {
	const a, db, b, w, h = 90, 280, 470, 140, 44
	p := &picture{name: "takeover.svg", title: "A worker takes over the run of another", height: 580}
	p.lifeline("running", a, 250, "worker A")
	p.lifeline("ink", db, 560, "Postgres")
	p.lifeline("completed", b, 560, "worker B")
	p.box("running", db-7, 92, 14, 224)
	p.message("running", a, db-7, 102, "claims")
	p.box("running", a-w/2, 124, w, h, "step 1")
	p.message("running", a+w/2, db-7, 146, "records")
	p.box("running dashed", a-w/2, 188, w, h, "step 2")
	p.box("code failed", a-w/2, 250, w, 36, "kill -9")
	p.write("running", "start", db+19, 211, "A's lease")
	p.write("ink", "end", db-19, 320, "lease ends")
	p.box("completed", db-7, 346, 14, 196)
	p.message("completed", b, db+7, 356, "claims")
	p.box("past", b-w/2, 378, w, h, "step 1")
	p.message("past dashed", db+7, b-w/2, 400, "its record")
	p.box("completed", b-w/2, 442, w, h, "step 2 again")
	p.message("completed", b-w/2, db+7, 464, "records")
	p.message("completed", b, db+7, 530, "completes")
	p.write("completed", "end", db-19, 449, "B's lease")
	return p
}

// saga draws a run that fails, and its compensations.
func saga() *picture {
	const left, right, w, h = 20, 372, 168, 62
	p := &picture{name: "saga.svg", title: "Compensations", height: 408}
	p.box("code ink", left, 20, w, 44, "book-trip")
	p.box("code failed", right, 20, w, 44, string(kagzi.StatusFailed))
	for i, name := range []string{"flight", "hotel"} {
		y := 110 + i*108
		p.box("code completed", left, y, w, h, name, "done")
		p.box("code sleeping", right, y, w, h, "cancel-"+name, "child run")
		p.arrow("past dashed", left+w, y+h/2, right, y+h/2)
		p.write("past", "middle", 280, y+h/2-8, "registers")
		p.arrow("soft", left+w/2, y-46, left+w/2, y)
		p.arrow("soft", right+w/2, y, right+w/2, y-46)
	}
	p.arrow("soft", left+w/2, 280, left+w/2, 326)
	p.box("code failed", left, 326, w, h, "car", "fails")
	p.arrow("soft", left+w, 326+h/2, right+w/2, 326+h/2, right+w/2, 218+h)
	p.write("ink", "middle", 280, 326+h/2-8, "in reverse order")
	return p
}

// conversation draws a program that asks a run, and reads a value of it.
func conversation() *picture {
	const asker, db, run, w = 90, 280, 470, 140
	p := &picture{name: "conversation.svg", title: "A program asks a run, and reads a value", height: 480}
	p.lifeline("ink", asker, 460, "program")
	p.lifeline("ink", db, 460, "Postgres")
	p.lifeline("ink", run, 460, "run")
	p.box("code sleeping", run-w/2, 84, w, 62, "request.Wait", "sleeps")
	p.box("code running", asker-w/2, 142, w, 136, "request.Ask")
	p.message("soft", asker+w/2, db, 168, "question")
	p.box("code running", run-w/2, 168, w, 84, "r.Reply")
	p.message("soft dashed", db, run-w/2, 190, "wakes it")
	p.message("soft", run-w/2, db, 234, "answer")
	p.message("soft dashed", db, asker+w/2, 258, "answer")
	p.box("code running", run-w/2, 274, w, 44, "value.Set")
	p.message("soft", run-w/2, db, 296, "value")
	p.box("code sleeping", run-w/2, 340, w, 100, "request.Wait", "sleeps on")
	p.box("code running", asker-w/2, 340, w, 100, "value.Get")
	p.message("soft", asker+w/2, db, 368, "reads")
	p.message("soft dashed", db, asker+w/2, 418, "value")
	return p
}
