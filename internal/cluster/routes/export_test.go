package routes

// SetWatch makes a router call watch before each change, and make changes one by one.
func (r *Router) SetWatch(watch func(op string) error) { r.watch, r.together = watch, 1 }
