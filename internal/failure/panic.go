package failure

import (
	"bytes"
	"errors"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// A Panic is a panic in user code, or a goroutine of Kagzi's that user code ended. The value's text is taken at once:
// the value may change, and its methods may panic.
type Panic struct {
	message string
	stack   []byte
}

// OfPanic is the failure of code that panicked with value, where debug.Stack was stack.
func OfPanic(value any, stack []byte) error {
	return &Panic{"panic: " + text.OfValue(value), WithoutArguments(userStack(stack))}
}

var goexit = &Panic{message: "the function ended its goroutine with runtime.Goexit, as t.FailNow and t.Fatal do"}

// OfGoexit is the failure of code that ended its goroutine.
func OfGoexit() error { return goexit }

// IsGoexit reports whether a recorded failure is that of OfGoexit. The text of a panic begins in another way, so none
// is taken for it.
func IsGoexit(errorKind, text string) bool {
	return errorKind == string(kind.Panic) && text == goexit.message
}

// Error returns the value's text, without the stack.
func (e *Panic) Error() string { return e.message }

// Stack returns the stack of the goroutine that panicked, from the panic on. It is empty after runtime.Goexit.
func (e *Panic) Stack() []byte { return e.stack }

// Is reports whether target is the kind of panics.
func (e *Panic) Is(target error) bool { return IsKind(target, kind.Panic) }

// userStack drops what the panic itself left on top of a stack of debug.Stack.
func userStack(stack []byte) []byte {
	i := bytes.Index(stack, []byte("\npanic("))
	if i < 0 {
		return stack
	}
	rest := stack[i+1:]
	for range 2 { // "panic(…)" and its position
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	return rest
}

// PlaceOf returns the function and the line that panicked, where debug.Stack was stack.
func PlaceOf(stack []byte) string {
	call, rest, _ := bytes.Cut(WithoutArguments(userStack(stack)), []byte("\n"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	line, _, _ = bytes.Cut(bytes.TrimSpace(line), []byte(" +0x"))
	return string(call) + " (" + string(line) + ")"
}

// WithoutArguments returns a stack of debug.Stack or runtime.Stack without the arguments of the calls. Go writes them
// in hexadecimal, and numbers among them may be parts of an input.
func WithoutArguments(stack []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(stack) {
		call, end := bytes.TrimSuffix(line, []byte("\n")), []byte("\n")
		if len(call) == len(line) {
			end = nil
		}
		if i := bytes.LastIndexByte(call, '('); i > 0 && line[0] != '\t' && bytes.HasSuffix(call, []byte(")")) &&
			len(call) > i+2 {
			out.Write(call[:i])
			out.WriteString("(...)")
			out.Write(end)
			continue
		}
		out.Write(line)
	}
	return out.Bytes()
}

// Text returns err's text as it is stored: valid for Postgres, bounded, a panic's with its stack.
func Text(err error) string {
	message := text.OfError(err)
	if stack := stackOf(err); len(stack) > 0 {
		return text.Sanitize(text.Sanitize(message, text.MaxError/2)+"\n\n"+string(stack), text.MaxError)
	}
	return text.Sanitize(message, text.MaxError)
}

func stackOf(err error) (stack []byte) {
	defer func() { _ = recover() }() // a method of a user's error
	if e, ok := errors.AsType[*Panic](err); ok {
		stack = e.stack
	}
	return stack
}
