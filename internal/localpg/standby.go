package localpg

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
)

// Standby starts another server, which follows c by streaming replication and answers queries. It has c's settings and
// password. It returns once the standby accepts connections. pg_promote makes it a server like any other.
func (c *Cluster) Standby(ctx context.Context) (_ *Cluster, err error) {
	dir, err := c.dir.another()
	if err != nil {
		return nil, fmt.Errorf("localpg: standby: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.remove())
		}
	}()
	args := []string{
		"--pgdata=" + dir.data(), "--host=" + c.dir.socket(), "--port=" + strconv.Itoa(c.port), "--username=postgres",
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync", "--no-manifest",
	}
	if err := execute(ctx, filepath.Join(c.bin, "pg_basebackup"), args, dir); err != nil {
		return nil, fmt.Errorf("localpg: standby: %w", err)
	}
	s := &Cluster{bin: c.bin, dir: dir, password: c.password, settings: c.settings, environ: c.environ}
	if err := s.runAnywhere(ctx); err != nil {
		return nil, fmt.Errorf("localpg: standby: %w", err)
	}
	return s, nil
}
