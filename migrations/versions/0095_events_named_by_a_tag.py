"""What was brought to the inbox under a name that anybody can count on is not brought again under the new one."""

from migrations.raw import execute

revision = "0095"
down_revision = "0094"

# The names of an event so far; an old program named a message by its update's number. The parts of an album wait
# together, and one of them names it.
DONE = """
UPDATE messenger.updates u SET handled_at = clock_timestamp(), outcome = 'ingested'
FROM messenger.updates p JOIN switchboard.inbox i ON i.channel = 'telegram' AND i.endpoint_identity = p.bot
    AND i.external_event_id = ANY (ARRAY[
        concat(p.body #>> '{message,chat,id}', ':', p.body #>> '{message,message_id}'),
        p.update_id::text,
        concat(p.body #>> '{edited_message,chat,id}', ':', p.body #>> '{edited_message,message_id}', ':edit:',
            coalesce(p.body #>> '{edited_message,edit_date}', 'None'), ':', p.update_id),
        concat(p.body #>> '{message_reaction,chat,id}', ':', p.body #>> '{message_reaction,message_id}', ':reaction:',
            p.body #>> '{message_reaction,date}', ':', coalesce(p.body #>> '{message_reaction,user,id}', 'None'))])
    AND strpos(i.text, left(coalesce(p.body #>> '{message,text}', p.body #>> '{message,caption}',
        p.body #>> '{edited_message,text}', p.body #>> '{edited_message,caption}', ''), 20000)) > 0
WHERE u.handled_at IS NULL AND p.handled_at IS NULL AND p.bot = u.bot
    AND (p.update_id = u.update_id OR p.body #> '{message,media_group_id}' = u.body #> '{message,media_group_id}')
"""


def upgrade() -> None:
    """Note updates as brought in whose words stand in the inbox already."""
    execute(DONE)
