package dynamodb

import "github.com/ashlar-dev/storage"

const (
	// maxBuckets is the maximum number of buckets, which are numbered by a byte.
	maxBuckets = 256
	// defaultBuckets is the number of buckets of a new store. With 10,000 writes a second of 1,000 resources, of two units each, the fullest of
	// 32 buckets takes less than a partition's 1,000 units; the fullest of 16 takes more.
	defaultBuckets = 32
)

// typeBucket is a bucket of a type.
type typeBucket struct {
	storage.UnversionedType
	bucket int
}

// bucketSet is a set of buckets, one bit for each.
type bucketSet [maxBuckets / 8]byte

func (s *bucketSet) has(bucket int) bool { return s[bucket/8]&(1<<(bucket%8)) != 0 }

func (s *bucketSet) add(bucket int) { s[bucket/8] |= 1 << (bucket % 8) }

// without returns the buckets of the set that another set lacks, in order.
func (s *bucketSet) without(other bucketSet) (buckets []int) {
	for bucket := range maxBuckets {
		if s.has(bucket) && !other.has(bucket) {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}
