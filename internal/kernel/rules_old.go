package kernel

// The names of before, until all callers use the new ones.
type (
	Concern    = RuleSet
	Entry      = Element
	TakenError = ConflictError
)

func (s *Space) Claim(op, tag string, entries []Entry) error { return s.Apply(op, tag, entries) }

func (s *Space) Release(concern *Concern, match func(tag string) bool) ([]Held, error) {
	return s.Remove(concern, match)
}

func (s *Space) ReleaseIf(there Entry, concern *Concern, match func(tag string) bool) ([]Held, error) {
	return s.RemoveIf(there, concern, match)
}

func (s *Space) Meet(batches ...*Batch) error { return s.ApplyBatches(batches...) }

func (s *Space) Unmet(batches ...*Batch) ([][]Held, error) { return s.MissingInBatches(batches...) }
