package shard

// move is units that are to leave one shard for another.
type move struct {
	from, to int
	units    int64
}

// plan decides which units go where so that every shard has what it needs. stock and need are by shard; what a shard has
// serves its own need first. It changes both. Needs above what there is are left unserved.
//
// The richest shard gives, and gives more than it must as long as there is enough for every need: its stock divided among
// itself and the shards that still need something, so half of it for one. A shard that just ran dry has more users on
// their way, and moves are few for it.
func plan(stock, need []int64) []move {
	hungry, spare := int64(0), int64(0)
	for i := range need {
		own := min(stock[i], need[i])
		stock[i] -= own
		need[i] -= own
		spare += stock[i] - need[i]
		if need[i] > 0 {
			hungry++
		}
	}
	spare = max(0, spare)
	var moves []move
	for to := range need {
		if need[to] == 0 {
			continue
		}
		for need[to] > 0 {
			from := richest(stock)
			if stock[from] == 0 {
				return moves
			}
			units := min(stock[from], need[to])
			more := min(stock[from]/(hungry+1)-units, spare)
			if more > 0 {
				units += more
				spare -= more
			}
			moves = append(moves, move{from, to, units})
			stock[from] -= units
			need[to] = max(0, need[to]-units)
		}
		hungry--
	}
	return moves
}

func richest(stock []int64) int {
	best := 0
	for i := range stock {
		if stock[i] > stock[best] {
			best = i
		}
	}
	return best
}
