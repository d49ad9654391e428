package packet

// Choices decides the conditions of a packet that are met at random, such as the choice of an
// endpoint by kube-proxy. The zero value takes the first possibility of each condition; [Choices.Next]
// goes through all combinations.
type Choices struct {
	taken []int
	of    []int // numbers of possibilities
	met   int   // conditions so far
}

// Of returns the number of conditions that the packet has met.
func (c *Choices) Of() int { return c.met }

// Rewind makes the conditions after the first n new again, so that a second evaluation of the same
// rules decides alike.
func (c *Choices) Rewind(n int) {
	if c != nil {
		c.met = n
	}
}

// Next selects the next combination. It returns false after the last one.
func (c *Choices) Next() bool {
	c.taken, c.of, c.met = c.taken[:c.met], c.of[:c.met], 0
	for len(c.taken) > 0 {
		last := len(c.taken) - 1
		if c.taken[last]+1 < c.of[last] {
			c.taken[last]++
			return true
		}
		c.taken, c.of = c.taken[:last], c.of[:last]
	}
	return false
}

// choose returns one of n possibilities, from 0.
func (c *Choices) choose(n int) int {
	if c.met == len(c.taken) {
		c.taken, c.of = append(c.taken, 0), append(c.of, n)
	}
	c.met++
	return c.taken[c.met-1]
}
