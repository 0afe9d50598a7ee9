"""Programs that fail as users' do, one for each way; nothing imports them. `cases` has what the job must say."""
