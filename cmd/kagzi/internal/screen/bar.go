package screen

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Bar shows on a terminal how far a command is: "cancelling ━━━━────── 120 of 400, 30 %, 12s left". Elsewhere it
// writes nothing. It is safe for concurrent use.
type Bar struct {
	screen *Screen
	verb   string
	total  int
	begun  time.Time

	mu    sync.Mutex
	done  int
	drawn time.Time // when the bar was last drawn
}

// Bar begins a bar. If total is zero, there is no telling how far it is, and the bar only says what the command does.
func (s *Screen) Bar(verb string, total int) *Bar {
	b := &Bar{screen: s, verb: verb, total: total, begun: s.Now()}
	b.draw()
	return b
}

// often is how often a bar is drawn at most.
const often = 50 * time.Millisecond

// Add moves the bar by n.
func (b *Bar) Add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += n
	if b.done == b.total || b.screen.Now().Sub(b.drawn) >= often {
		b.draw()
	}
}

// End removes the bar from the terminal.
func (b *Bar) End() {
	if b.screen.Live > 0 {
		fmt.Fprint(b.screen.Err, "\r\x1b[K")
	}
}

func (b *Bar) draw() {
	if b.screen.Live == 0 {
		return
	}
	b.drawn = b.screen.Now()
	fmt.Fprint(b.screen.Err, "\r"+Cut(b.text(), b.screen.Live-1)+"\x1b[K")
}

// text returns the bar as it stands.
func (b *Bar) text() string {
	if b.total == 0 {
		return b.verb + "…"
	}
	const cells = 30
	full := cells * b.done / b.total
	line := fmt.Sprintf("%s %s%s %d of %d, %d %%", b.verb, strings.Repeat("━", full), strings.Repeat("─", cells-full),
		b.done, b.total, 100*b.done/b.total)
	if passed := b.screen.Now().Sub(b.begun); b.done > 0 && b.done < b.total && passed > time.Second {
		line += ", " + Short(time.Duration(float64(passed)*float64(b.total-b.done)/float64(b.done)).
			Round(time.Second)) + " left"
	}
	return line
}
