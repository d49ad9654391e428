package agent

import "context"

func (a *Agent) uploadAudit(context.Context) error { return nil }
