//go:build !linux

package fault

import (
	"errors"
	"os"
)

func mount(string, int) error               { return errors.ErrUnsupported }
func unmount(string) error                  { return errors.ErrUnsupported }
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
