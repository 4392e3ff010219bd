package ui

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// A runPage shows one run.
type runPage struct {
	client   *kagzi.Client
	admin    *admin.Client
	access   web.Access
	cache    *web.Cache
	links    web.Links
	payloads payloads
	names    *runNames
}

// pathOf returns the path of a run's page.
func pathOf(run kagzi.RunInfo) string { return "/runs/" + string(run.ID) }

// gone returns the error for a run that is not there: who deleted it, if an operator did.
func (p *runPage) gone(ctx context.Context, ref kagzi.Ref) error {
	said, err := explain.Deleted(ctx, p.client, ref,
		explain.Words{Moment: func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }})
	switch {
	case err != nil:
		return err
	case said != "":
		return web.Status(404, fmt.Sprintf("The run %v is not there: %s.", ref, said))
	}
	return web.Status(404, fmt.Sprintf("No run of this namespace is called %v. Retention deletes runs some time after "+
		"their end.", ref))
}
