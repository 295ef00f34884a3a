package dynamodb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// setup prepares a table and a store when they are opened.
type setup struct{ *table }

// open ensures that the table exists and has the right form, and returns the store's id.
func (s setup) open(ctx context.Context) (driver.StoreID, error) {
	description, err := s.await(ctx, false)
	if request.HasCode(err, "ResourceNotFoundException") && !s.opts.NoCreate && !s.opts.keepTable {
		if err = s.create(ctx); err == nil {
			description, err = s.await(ctx, true)
		}
	}
	none := driver.StoreID{}
	if request.HasCode(err, "ResourceNotFoundException") {
		return none, fmt.Errorf("%w: there is no table %s in region %s, and create=off forbids creating it: %w", storage.ErrNoStore, s.name,
			s.db.Options().Region, err)
	}
	if err != nil {
		return none, fmt.Errorf("open table %s in region %s: %w", s.name, s.db.Options().Region, err)
	}
	if err = checkKeys(description); err == nil {
		err = checkStream(description.StreamSpecification)
	}
	if err == nil {
		err = checkReplicas(description.Replicas)
	}
	if err != nil {
		return none, fmt.Errorf("table %s cannot hold a store: %w", s.name, err)
	}
	if !s.opts.NoCreate && !s.opts.keepTable {
		if err := s.finish(ctx); err != nil {
			return none, fmt.Errorf("set up table %s: %w", s.name, err)
		}
	}
	id, err := s.openStore(ctx)
	if err != nil {
		return none, fmt.Errorf("open the store in table %s: %w", s.name, err)
	}
	return id, nil
}

// await waits until the table is usable. A table that was created just now may not be visible yet.
func (s setup) await(ctx context.Context, made bool) (*types.TableDescription, error) {
	for {
		description, err := s.describe(ctx)
		switch {
		case made && request.HasCode(err, "ResourceNotFoundException"):
		case err != nil:
			return nil, err
		case description.TableStatus != types.TableStatusCreating:
			return description, nil
		}
		if !request.Sleep(ctx, 200*time.Millisecond) {
			return nil, request.Inconsistent(ctx, errors.New("the table is still being created"))
		}
	}
}

// checkKeys compares an existing table's keys with the required ones.
func checkKeys(table *types.TableDescription) error {
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range table.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	found := ""
	for _, k := range table.KeySchema {
		name := aws.ToString(k.AttributeName)
		found += fmt.Sprintf(" %s (%s, %s)", name, k.KeyType, kinds[name])
	}
	if want := fmt.Sprintf(" %s (HASH, B) %s (RANGE, B)", attrPK, attrSK); found != want {
		return fmt.Errorf("its keys are%s, expected%s", found, want)
	}
	return nil
}

func checkStream(s *types.StreamSpecification) error {
	switch {
	case s == nil || !aws.ToBool(s.StreamEnabled):
		return errors.New("its stream is disabled, expected a stream with NEW_AND_OLD_IMAGES")
	case s.StreamViewType != types.StreamViewTypeNewAndOldImages:
		return fmt.Errorf("its stream shows %s, expected NEW_AND_OLD_IMAGES", s.StreamViewType)
	}
	return nil
}

// checkReplicas refuses global tables: their replicas accept conflicting writes.
func checkReplicas(replicas []types.ReplicaDescription) error {
	if len(replicas) == 0 {
		return nil
	}
	regions := make([]string, len(replicas))
	for i, r := range replicas {
		regions[i] = aws.ToString(r.RegionName)
	}
	return fmt.Errorf("it is a global table, with replicas in %s, which accept conflicting writes; expected a table in one region", strings.Join(regions, ", "))
}

// checkTimeToLive refuses a time-to-live that would remove other items than the expired ones.
func checkTimeToLive(d *types.TimeToLiveDescription) error {
	if name := aws.ToString(d.AttributeName); name != attrExpires {
		return fmt.Errorf("its time-to-live attribute is %q, expected %q; disable it, and the next opening enables the expected one", name, attrExpires)
	}
	return nil
}

// create creates the table. Other processes may create it concurrently.
func (s setup) create(ctx context.Context) error {
	in := &dynamodb.CreateTableInput{
		TableName:   &s.name,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrPK), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrSK), KeyType: types.KeyTypeRange},
		},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrPK), AttributeType: types.ScalarAttributeTypeB},
			{AttributeName: aws.String(attrSK), AttributeType: types.ScalarAttributeTypeB},
		},
		StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		},
	}
	for name, value := range s.opts.Tags {
		in.Tags = append(in.Tags, types.Tag{Key: &name, Value: &value})
	}
	_, err := retry(ctx, s.table, s.db.CreateTable, in)
	if request.HasCode(err, "ResourceInUseException") {
		return nil // another process was faster and completes the setup
	}
	return err
}

// finish enables the settings that CreateTable does not accept. The process that created the table may have died before, so each
// opening checks them. The time-to-live comes last: if it is enabled, the rest is as well. A program without permission to read or
// change the settings works without them.
func (s setup) finish(ctx context.Context) error {
	out, err := retry(ctx, s.table, s.db.DescribeTimeToLive, &dynamodb.DescribeTimeToLiveInput{TableName: &s.name})
	switch {
	case request.HasCode(err, "AccessDeniedException"):
		return nil
	case err != nil:
		return err
	case out.TimeToLiveDescription == nil || out.TimeToLiveDescription.TimeToLiveStatus == types.TimeToLiveStatusDisabling:
		return nil
	case out.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusDisabled:
		return checkTimeToLive(out.TimeToLiveDescription)
	}
	if s.opts.PointInTimeRecovery {
		_, err := retry(ctx, s.table, s.db.UpdateContinuousBackups, &dynamodb.UpdateContinuousBackupsInput{
			TableName:                        &s.name,
			PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
		})
		if err != nil {
			return err
		}
	}
	_, err = retry(ctx, s.table, s.db.UpdateTimeToLive, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &s.name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrExpires), Enabled: aws.Bool(true)},
	})
	if request.HasCode(err, "AccessDeniedException", "ValidationException") {
		return nil // enabled by another process
	}
	return err
}

// openStore reads the item that describes the store, or creates it, and sets the layout's buckets.
func (s setup) openStore(ctx context.Context) (driver.StoreID, error) {
	for {
		it, err := s.get(ctx, true, s.store())
		switch {
		case err != nil:
			return driver.StoreID{}, err
		case it != nil:
			id, err := s.readStore(it)
			if err == nil && s.opts.Buckets > 0 && s.opts.Buckets != s.buckets {
				err = fmt.Errorf("%w: the store has buckets=%d, and the number is fixed: migrate to a store with another prefix for buckets=%d",
					storage.ErrInvalid, s.buckets, s.opts.Buckets)
			}
			return id, err
		case s.opts.NoCreate:
			return driver.StoreID{}, fmt.Errorf("%w: there is none with the prefix %q, and create=off forbids creating one", storage.ErrNoStore, s.prefix)
		}
		var id driver.StoreID
		_, _ = rand.Read(id[:]) // never fails
		it = s.store()
		it[attrStoreID], it[attrSchema], it[attrVersion] = binaryValue(id[:]), binaryValue([]byte{schemaVersion}), binaryValue(newRevision())
		if buckets := cmp.Or(s.opts.Buckets, defaultBuckets); buckets > 1 {
			it[attrSchema], it[attrBuckets] = binaryValue([]byte{usedSetsSchemaVersion}), binaryValue([]byte{byte(buckets - 1)})
		}
		if err := s.createStore(ctx, it); err != nil && !conditionFailed(err) && !errors.Is(err, errCondition) {
			return driver.StoreID{}, err
		}
	}
}

// createStore creates the item that describes the store. A store that is closed from the beginning has a fence from the same moment, so
// that no other handle ever has a permission to write.
func (s setup) createStore(ctx context.Context, store item) error {
	value := driver.NewStoreFence(ctx)
	if value == nil {
		return s.put(ctx, store, absent)
	}
	fence, epoch := shutFence(s.table, newRevision(), *value), s.note(driver.FenceNote)
	epoch[attrData], epoch[attrVersion] = binaryValue([]byte{}), binaryValue(newRevision())
	all := make([]types.TransactWriteItem, 0, 3)
	for _, it := range []item{store, fence, epoch} {
		all = append(all, s.on(types.TransactWriteItem{Put: &types.Put{Item: it}}, absent))
	}
	_, err := s.transact(ctx, all...)
	return err
}

// readStore sets the layout of the store, and returns its id, from the item that describes it. It fails if this program does not support its
// schema.
func (s setup) readStore(it item) (id driver.StoreID, err error) {
	schema := it.bytes(attrSchema)
	malformed := errors.New("the item that describes the store is malformed")
	switch {
	case len(it.bytes(attrStoreID)) != len(id) || len(schema) != 1:
		return id, malformed
	case schema[0] > usedSetsSchemaVersion:
		return id, fmt.Errorf("%w: its schema is %d, this program supports %d", storage.ErrNewerSchema, schema[0], usedSetsSchemaVersion)
	}
	s.buckets, s.hasUsedSets = 1, schema[0] >= usedSetsSchemaVersion
	if schema[0] >= bucketsSchemaVersion {
		if b := it.bytes(attrBuckets); len(b) == 1 {
			s.buckets = int(b[0]) + 1
		}
		if s.buckets == 1 {
			return id, malformed
		}
	}
	return driver.StoreID(it.bytes(attrStoreID)), nil
}
