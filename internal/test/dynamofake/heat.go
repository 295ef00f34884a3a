package dynamofake

// heat limits the write units that each partition key accepts.
type heat struct {
	limit     int // 0: none
	units     map[string]int
	throttles int
}

// admit counts the units of a request, unless it exceeds the limit of a partition key.
func (h *heat) admit(op string, in *request) error {
	if h.limit == 0 {
		return nil
	}
	spent := map[string]int{}
	switch op {
	case "PutItem", "UpdateItem", "DeleteItem":
		w := write{Item: in.Item, Key: in.Key}
		spent[w.address().pk] = w.units()
	case "TransactWriteItems":
		for _, m := range in.TransactItems {
			spent[m.write().address().pk] += 2 * m.write().units()
		}
	}
	for pk, n := range spent {
		if h.units[pk]+n > h.limit {
			h.throttles++
			return refuse("ThrottlingException", "the partition key %q exceeds %d write units", pk, h.limit)
		}
	}
	for pk, n := range spent {
		h.units[pk] += n
	}
	return nil
}

// units returns the write units of a put. It assumes that other items are small.
func (w *write) units() int { return max((w.Item.size()+1023)/1024, 1) }
