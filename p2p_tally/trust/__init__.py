"""Who is who, and who is a member: keys, certificates, the members' list, invitations. No network, no rounds."""
